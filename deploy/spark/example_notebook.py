# %% [markdown]
# # What dies, why, and what helps
#
# The history of a sidecar as DataFrames. Open this file in Jupyter (with jupytext), VS Code or
# PyCharm, or run it as it is: `JOURNAL=/var/lib/amqsidecar/journal python
# deploy/spark/example_notebook.py`. It needs `amqsidecar[pipeline]` and Java 17.

# %%
import os

import altair
from pyspark.sql import Window
from pyspark.sql import functions as f

from amqsidecar.pipeline.session import open_session
from amqsidecar.pipeline.sources.datasource import register
from amqsidecar.pipeline.sources.events import read_events

JOURNAL = os.environ.get("JOURNAL", "/var/lib/amqsidecar/journal")
BROKER_URL = os.environ.get("BROKER_URL", "")  # such as artemis://reader@broker:61616
PASSWORD_FILE = os.environ.get("PASSWORD_FILE", "")
QUEUE = os.environ.get("QUEUE", "DLQ")

spark = open_session("notebook", None, [])
register(spark)

# %% [markdown]
# ## The events
#
# A journal, or the table that `amqsidecar pipeline ingest` makes of many: the same columns. Each
# event is there once; what is lacking or torn is an error or a line in the log.

# %%
events = read_events(spark, JOURNAL).cache()
events.groupBy("type").count().orderBy(f.desc("count")).show()

# %% [markdown]
# ## Where messages die, and of what

# %%
deaths = events.where(f.col("type").isin("received", "returned"))
causes = (
    deaths.groupBy("origin", "cause_group")
    .agg(
        f.count("*").alias("deaths"),
        f.countDistinct("redelivery_id").alias("messages"),
        f.max("at").alias("last_seen"),
    )
    .orderBy(f.desc("deaths"), "origin", "cause_group")
)
causes.show(20, truncate=60)

# %% [markdown]
# ## Which re-send helps
#
# A message that does not return after a re-send has recovered, as far as one can see: the sidecar
# hears of failures only. A re-send of a moment ago counts as a success here; `amqsidecar pipeline
# recovery` does it right.

# %%
life = Window.partitionBy("redelivery_id").orderBy("at", "stream", "segment", "position")
after = f.lead("type").over(life.rowsBetween(1, 1))
resends = (
    events.where(f.col("type").isin("resent", "returned"))
    .withColumn("next", after)
    .where(f.col("type") == "resent")
)
helped = (
    resends.groupBy("destination", f.col("redelivery_count").alias("attempt"))
    .agg(
        f.count("*").alias("resends"),
        f.avg(f.when(f.col("next").isNull(), 1.0).otherwise(0.0)).alias("share_recovered"),
    )
    .orderBy("destination", "attempt")
)
helped.show()

# %%
chart = (
    altair.Chart(helped.toPandas())
    .mark_line(point=True)
    .encode(
        x="attempt:O", y=altair.Y("share_recovered:Q").scale(domain=[0, 1]), color="destination"
    )
)
chart  # noqa: B018 - a notebook shows it

# %% [markdown]
# ## The life of one message

# %%
worst = deaths.groupBy("redelivery_id").count().orderBy(f.desc("count"), "redelivery_id").first()
story = events.where(f.col("redelivery_id") == (worst.redelivery_id if worst else "")).orderBy(
    "at", "stream", "segment", "position"
)
story.select("at", "type", "destination", "redelivery_count", "cause_group").show(truncate=60)

# %% [markdown]
# ## As it grows
#
# The same as a stream. A checkpoint remembers what was read by segments, so that compaction and
# retention of the journal don't disturb it; here all of it goes into memory, once.

# %%
stream = spark.readStream.format("amqsidecar").load(JOURNAL)
query = (
    stream.groupBy("type")
    .count()
    .writeStream.format("memory")
    .queryName("types")
    .outputMode("complete")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.table("types").orderBy("type").show()

# %% [markdown]
# ## What lies in a dead-letter queue now
#
# A look that takes nothing. Bodies are not read by Spark.

# %%
if BROKER_URL:
    look = spark.read.format("amqsidecar").option("url", BROKER_URL).option("queue", QUEUE)
    if PASSWORD_FILE:
        look = look.option("password_file", PASSWORD_FILE)
    look.load().groupBy("origin", "cause_group").count().orderBy(f.desc("count")).show(truncate=60)
