"""Run studies, in which arms are compared on common seeds; store and evaluate their runs.

- `study`: defines `Study`, and `Model`, its interface to a network; `mlp`, `language_model`: the
  two networks;
- `studies`: the built-in studies, from ``files/MODEL`` and from Python; `study_file` reads TOML;
- `run_study`: runs a whole study in one call; `sweep` runs its tasks on processes or a cluster;
- `report`: collects stored runs in one table, and makes pages and figures from the table;
- `statistics`, `excursions`, `thresholds`, `surface`, `critical`, `interventions`: evaluate runs.
"""
