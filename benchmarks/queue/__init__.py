"""Jobs that breathe beside jobs in the order of EASY back-fill, on traces of real clusters."""
