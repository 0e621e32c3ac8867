"""What one training run is (spec), what came of it (record), where both lie (store), and how it is trained."""
