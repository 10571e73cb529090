"""The rules that concern several fields of a spec; spec.py lists all. A rule of one field is at that field."""
