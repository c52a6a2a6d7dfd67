"""Pages that explain runs: one offline HTML file each, with interactive plots."""
