"""Data files that are not Parquet: ORC and Avro (`data_files`), and the Avro decoder that manifests use too."""
