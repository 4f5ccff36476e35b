"""All tests of this folder share one Spark session. Commands that are called in them use it, too."""

import pytest

from mpijoin.pipeline.configuration import JAVA_OPTIONS
from mpijoin.pipeline.session import spark_session

# Few rows never pay for Java's optimizing compiler and for threads that collect garbage.
FOR_FEW_ROWS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def spark():
    # What Spark cannot compile fails here. Elsewhere it would say so at length, and go on many times as slowly.
    settings = {"spark.sql.codegen.fallback": "false"}
    with spark_session("tests", "local[2]", settings, [f"{JAVA_OPTIONS}={FOR_FEW_ROWS}"]) as session:
        yield session
