#!/bin/sh
# The image's one door: `syphon` with whatever it is told, or, if that is the one word with which Spark on Kubernetes starts
# its pods, an executor.
set -eu

[ "${1:-}" = executor ] || exec syphon "$@"

# Spark hands over the JVM's options one by one, as SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, …; an empty one is no option.
set --
number=0
while eval "[ \"\${SPARK_JAVA_OPT_$number+is set}\" ]"; do
    eval "option=\$SPARK_JAVA_OPT_$number"
    [ -z "$option" ] || set -- "$@" "$option"
    number=$((number + 1))
done

exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" "$@" \
    -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CONF_DIR:+$SPARK_CONF_DIR:}$SPARK_HOME/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
