"""The explorer: recordings as one HTML page that a browser shows without a server or a request."""
