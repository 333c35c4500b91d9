"""Options for JVMs that a test starts and is not about: servers and clusters, and the sessions of scripts.

They run for seconds, and would spend most of them on compiling what they run once. The driver of a command needs no
such options: it has its own. A script that asks for another garbage collector must not have these.
"""

from __future__ import annotations

from syphon.spark.jvm_archive import options_for

SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xlog:disable"
"""With no log of the JVM: it says on stdout that an archive does not fit its class path."""


def quick_java() -> dict[str, str]:
    """The environment of a process, for every JVM that it starts."""
    return {"JDK_JAVA_OPTIONS": options_for(SHORT_LIVED)}
