"""Write files atomically, and format tables of text and colours of figures."""
