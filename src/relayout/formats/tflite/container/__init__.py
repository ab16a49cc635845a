"""The file itself: schema rows, the verified reader, the writer, metadata."""
