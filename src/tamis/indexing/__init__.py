"""The statistics index: what footers and values of data files say, noted beside the table once and for many queries."""
