"""Reports of runs and curves: progress, summaries, tables, pictures, pages and costs."""
