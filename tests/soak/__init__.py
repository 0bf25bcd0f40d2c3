"""Hours of everything a producer goes through, and a gate that tells growth from noise."""
