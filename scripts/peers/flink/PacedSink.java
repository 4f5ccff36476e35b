import org.apache.flink.streaming.api.functions.sink.legacy.RichSinkFunction;
import org.apache.flink.streaming.api.functions.sink.legacy.SinkFunction;

/** Counts results and their delays; a result is the time of its later tuple. */
public final class PacedSink extends RichSinkFunction<Long> {
    private transient PacedRecord record;

    @Override
    public void invoke(Long timeUs, SinkFunction.Context context) {
        if (record == null) {
            record = new PacedRecord(PacedJoin.record.lagsMs.length);
        }
        record.result(timeUs);
    }

    @Override
    public void close() {
        if (record != null) {
            PacedJoin.record.merge(record);
        }
    }
}
