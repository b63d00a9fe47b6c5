"""Run studies, in which arms are compared on the same seeds; store and evaluate the runs.

- `study` defines `Study`, and `Model`, the interface of a study to a network.
- `mlp` and `language_model` define the two networks.
- `studies` holds the built-in studies, from ``files/MODEL`` and from Python.
- `study_file` reads studies from TOML files.
- `run_study` runs a whole study in one call.
- `sweep` runs the tasks of a study in several processes or on a cluster.
- `report` collects stored runs in one table, and makes pages and figures from the table.
- `statistics`, `excursions`, `thresholds`, `surface`, `critical` and `interventions` evaluate runs.
"""
