"""Studies: arms that are compared on common seeds, how they are run, stored and judged.

- `study`: what a study is, and what it has to know of its network, a `Model`; `mlp`, `language_model`: the two of them;
- `studies`: those that ship, from ``files/MODEL`` and from Python; `study_file` reads TOML;
- `run_study`: one call for a whole study, over `sweep`, which runs tasks on processes or a cluster;
- `report`: from runs on disk to one table, and from that to pages and figures;
- `statistics`, `excursions`, `thresholds`, `surface`, `critical`, `interventions`: what is computed of runs.
"""
