"""What can be read and written: CSV and Arrow files; PyArrow itself reads Parquet."""
