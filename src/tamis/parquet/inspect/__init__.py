"""What `tamis inspect` shows of one file: `inspect_file`, its columns (`column_facts`), and how clustered they are."""
