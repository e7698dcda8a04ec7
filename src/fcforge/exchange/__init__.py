"""What hospitals exchange: signed records, and the models that are made of them."""
