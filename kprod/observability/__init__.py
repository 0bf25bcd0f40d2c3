"""Monitoring of producers: Prometheus, OpenTelemetry (metrics and traces), StatsD.

>>> from kprod.observability.prometheus import ProducerCollector
>>> from kprod.observability.opentelemetry import TracingInterceptor, observe_producer
"""
