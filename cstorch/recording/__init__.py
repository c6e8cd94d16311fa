"""What a traced step calls of its optimizer, scaler and results, recorded while it is traced."""
