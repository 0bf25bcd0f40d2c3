"""Producers watched in production: Prometheus, OpenTelemetry metrics and traces, each an extra

>>> from kprod.observability.prometheus import ProducerCollector
>>> from kprod.observability.opentelemetry import TracingInterceptor, observe_producer
"""
