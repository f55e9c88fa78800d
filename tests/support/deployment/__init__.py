"""The chart, the image, Kubernetes and Prometheus."""
