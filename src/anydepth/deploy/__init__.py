"""Out into the world: other engines and formats, the server, its page. Nothing here knows how a model was trained."""
