"""The protocol layer: messages in and out, and the server to which features are added."""
