"""Messages between server and vehicles, carried by Flower; nothing else imports Flower."""
