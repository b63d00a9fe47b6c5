"""Studies: arms that are compared on common seeds, and how they are run, stored and judged.

- `study`: what a study is, and its interface to a network, `Model`; `mlp`, `language_model`: the
  two networks;
- `studies`: the studies that ship, from ``files/MODEL`` and from Python; `study_file` reads TOML;
- `run_study`: one call for a whole study; `sweep` runs its tasks on processes or a cluster;
- `report`: runs on disk become one table, and the table becomes pages and figures;
- `statistics`, `excursions`, `thresholds`, `surface`, `critical`, `interventions`: what is computed
  from runs.
"""
