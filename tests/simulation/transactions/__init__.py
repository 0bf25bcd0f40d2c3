"""The decisions of a transactional producer against a coordinator that is a model of Kafka's."""
