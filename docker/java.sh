#!/bin/sh
# Makes a Java of the modules that Spark needs, out of the JDK on the PATH: a quarter of Debian's JRE, without its libraries for
# screens, printers and sound.
#   docker/java.sh TARGET
set -eu
# jdk.security.auth: Hadoop asks for the user's name. jdk.incubator.vector: Spark's own options name it. jdk.localedata and
# jdk.charsets are left out: texts are UTF-8.
jlink --output "$1" --compress=2 --strip-java-debug-attributes --no-header-files --no-man-pages --add-modules \
java.se,jdk.crypto.ec,jdk.incubator.vector,jdk.jfr,jdk.management,jdk.naming.dns,jdk.net,jdk.security.auth,jdk.security.jgss,jdk.unsupported,jdk.zipfs
# Debian's JDK keeps the certificates of authorities outside.
cp -L /etc/ssl/certs/java/cacerts "$1/lib/security/cacerts"
# Java's own classes, loaded and checked; the archive of Spark's builds on it.
"$1/bin/java" -Xshare:dump >/dev/null
