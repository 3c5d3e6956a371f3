"""What is shown of a fleet: lines, documents, pages."""
