"""What a user gets: diagnostics, the registry of rules, renderers, waivers."""
