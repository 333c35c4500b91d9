#!/bin/sh
# Removes what a worker, a drain and an executor never load from an environment that install.sh has made.
#   docker/slim.sh TARGET [kubernetes]
# Spark's client of Kubernetes goes as well unless `kubernetes` is named. docs/operations.md says what is left out and why;
# tests/integration/status/test_slim_image.py drains, inspects and reports with what remains.
set -eu
packages=$(echo "$1"/lib/python3*/site-packages)
jars=$packages/pyspark/jars
cd "$jars"

# Streaming keeps its state in it.
rm -f rocksdbjni-*
# Machine learning and graphs, with their mathematics.
rm -f spark-mllib* spark-graphx_* breeze* spire* cats-kernel_* algebra_* lapack-* blas-* arpack* JTransforms-* JLargeArrays-*
# Hive: its tables, its metastore and the database of that. ORC needs hive-storage-api, so it stays.
rm -f spark-hive* hive-exec-* hive-metastore-* hive-serde-* hive-common-* hive-jdbc-* hive-beeline-* hive-cli-* hive-service-rpc-* \
    hive-shims* derby* datanucleus-* javax.jdo-* jdo-api-* libthrift-* libfb303-* HikariCP-*
# Servers, shells and old streams: Spark Connect, pipelines, the shell with Scala's compiler, DStreams.
rm -f spark-connect* spark-pipelines_* spark-repl_* scala-compiler-* jline-* spark-streaming_*
# Election among masters of a standalone cluster.
rm -f curator-* zookeeper-*
# Libraries of other machines.
rm -f netty-*-osx-* netty-*-windows-* netty-*-riscv64*
case $(uname -m) in
    x86_64) rm -f netty-*-linux-aarch_64* ;;
    aarch64) rm -f netty-*-linux-x86_64* ;;
esac
if [ "${2:-}" != kubernetes ]; then
    rm -f spark-kubernetes_* kubernetes-* vertx-* volcano-* zjsonpatch-*
fi

# Arrow without Flight, S3 and what C++ programs are built with. pyarrow loads the two only when it is asked to.
cd "$packages/pyarrow"
rm -rf include src tests _flight.* _s3fs.* libarrow_flight.* libarrow_python_flight.* libarrow_s3.*

# Tests of others.
rm -rf "$packages"/pandas/tests "$packages"/numpy/tests "$packages"/numpy/*/tests "$packages"/py4j/tests
