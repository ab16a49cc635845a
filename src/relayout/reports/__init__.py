"""What was decided and why: the report as a value, as a table, as JSON, as a page."""
