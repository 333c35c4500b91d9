# One image for worker, drain and Spark's executors, and a small one with the emulator alone:
#   docker build -t syphon .
#   docker run --rm -v "$PWD/config.yaml:/etc/syphon/config.yaml:ro" syphon check -c /etc/syphon/config.yaml
#   docker build -t syphon-emulator --target emulator .
#   docker run --rm -p 127.0.0.1:5672:5672 -p 127.0.0.1:5300:5300 syphon-emulator
# The same image again next month needs the same base: --build-arg BASE=python:3.12-slim-bookworm@sha256:…
# Without executors on Kubernetes, Spark's client for it is not needed: --build-arg SPARK_ON=

ARG BASE=python:3.12-slim-bookworm

# hadolint ignore=DL3006
FROM ${BASE} AS build
ARG SPARK_ON=kubernetes
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY docker ./docker
COPY syphon ./syphon
RUN docker/install.sh . /opt/syphon && docker/slim.sh /opt/syphon ${SPARK_ON}

# hadolint ignore=DL3006
FROM ${BASE} AS java
COPY docker/java.sh /tmp/
# man1: Java's package wants to put links into it, and slim images have it removed.
# hadolint ignore=DL3008
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jdk-headless \
    && /tmp/java.sh /opt/java

# hadolint ignore=DL3006
FROM ${BASE} AS system
COPY docker/strip-system.sh /tmp/
# tini: the first process of a container has to bury Spark's orphans, and passes SIGTERM to the worker alone.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends tini \
    && groupadd --gid 10001 syphon \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/syphon --shell /usr/sbin/nologin syphon \
    && install -d -o syphon -g syphon -m 750 /var/lib/syphon \
    && install -d /etc/syphon/secrets \
    && /tmp/strip-system.sh

# hadolint ignore=DL3006
FROM ${BASE} AS emulator-packages
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY docker ./docker
COPY syphon ./syphon
RUN docker/install.sh . /opt/syphon docker/emulator/requirements.lock

# Ports, CONFIG_PATH and the last line of the log are those of Microsoft's emulator: Testcontainers modules start it by name.
FROM scratch AS emulator
# hadolint ignore=DL3067
COPY --from=system / /
COPY --from=emulator-packages /opt/syphon /opt/syphon
COPY --chmod=755 docker/emulator/entrypoint.sh /usr/local/bin/entrypoint
COPY --chmod=644 docker/emulator/Config.json /ServiceBus_Emulator/ConfigFiles/
ENV PATH=/opt/syphon/bin:/usr/local/bin:/usr/bin:/bin \
    LANG=C.UTF-8 \
    CONFIG_PATH=/ServiceBus_Emulator/ConfigFiles/Config.json \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /var/lib/syphon
EXPOSE 5672 5300
HEALTHCHECK --interval=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:5300/health', timeout=2)"]
ENTRYPOINT ["tini", "--", "entrypoint"]

# From nothing: what the stages above have removed is in no layer.
FROM scratch
# hadolint ignore=DL3067
COPY --from=system / /
COPY --from=java /opt/java /opt/java
COPY --from=build /opt/syphon /opt/syphon
COPY --chmod=755 docker/entrypoint.sh /usr/local/bin/entrypoint
ENV PATH=/opt/syphon/bin:/usr/local/bin:/usr/bin:/bin \
    LANG=C.UTF-8 \
    JAVA_HOME=/opt/java \
    SPARK_HOME=/opt/syphon/spark \
    SYPHON_CACHE=/opt/syphon/cache \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
# The archive of Spark's classes halves the start of worker and drain. Java trusts it, so only root may write it.
RUN python -m syphon.spark.jvm_archive \
    && rm "$SYPHON_CACHE/making.lock" \
    && chmod -R a+rX,go-w "$SYPHON_CACHE"
USER 10001:10001
WORKDIR /var/lib/syphon
EXPOSE 8080
ENTRYPOINT ["tini", "--", "entrypoint"]
CMD ["--help"]
