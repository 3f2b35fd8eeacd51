"""The dashboard: pages for the person on call, rendered on the server, useful without scripts."""
