"""Write files atomically, format tables as text, and define the colours of figures."""
