"""Relation inference: graphs evaluated over normal forms, promises checked, and where refinement stops holding."""
