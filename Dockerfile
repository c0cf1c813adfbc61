# The image of SparkRelay, for instances and for Spark's executors on Kubernetes. Yours adds the script and what it needs:
#
#     FROM sparkrelay:1
#     COPY pipeline.py /app/
#
# Built from a checkout: docker build --tag sparkrelay:1 .
ARG PYTHON=3.11-slim-bookworm

FROM python:${PYTHON} AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .
RUN python -m venv /opt/sparkrelay/venv \
    && /opt/sparkrelay/venv/bin/pip install --no-cache-dir --constraint constraints.txt /wheels/*.whl \
    && ln -s /opt/sparkrelay/venv/lib/python3*/site-packages/pyspark /opt/sparkrelay/spark

FROM python:${PYTHON}
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless tini \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 1000 sparkrelay \
    && useradd --uid 1000 --gid 1000 --create-home sparkrelay \
    && install --directory --owner 1000 --group 1000 /opt/sparkrelay/kernels /opt/sparkrelay/cache /app
COPY --from=build /opt/sparkrelay /opt/sparkrelay
COPY --chmod=0755 docker/entrypoint.sh /opt/sparkrelay/entrypoint
COPY --chmod=0755 docker/decommission.sh /opt/sparkrelay/decommission

ENV PATH=/opt/sparkrelay/venv/bin:$PATH \
    SPARKRELAY_KERNELS=/opt/sparkrelay/kernels \
    NUMBA_CACHE_DIR=/opt/sparkrelay/kernels \
    XDG_CACHE_HOME=/opt/sparkrelay/cache \
    PYTHONUNBUFFERED=1
# A number: where Kubernetes has runAsNonRoot, it does not look names up.
USER 1000:1000
# Kernels, and the archive of Spark's classes.
RUN sparkrelay prepare
WORKDIR /app
# tini reaps what Spark leaves and hands SIGTERM to the script alone: Spark's JVM has to outlive the stores.
ENTRYPOINT ["/usr/bin/tini", "--", "/opt/sparkrelay/entrypoint"]
