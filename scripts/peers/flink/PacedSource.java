import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import org.apache.flink.streaming.api.functions.source.legacy.RichSourceFunction;
import org.apache.flink.streaming.api.watermark.Watermark;

/** One stream from a file of tuples (three little-endian longs: time, key, id), each handed over when it is due. */
public final class PacedSource extends RichSourceFunction<Rec> {
    private static final int BLOCK = 1000; // tuples at most in one go: then the task may do something else, and lag is looked at

    private final String path;
    private final long watermarkNs;
    private transient LongBuffer words;
    private long watermarkedNs;
    private volatile boolean running = true;

    PacedSource(String path, long watermarkMs) {
        this.path = path;
        this.watermarkNs = watermarkMs * 1_000_000;
    }

    @Override
    public void run(SourceContext<Rec> context) throws Exception {
        try (FileChannel channel = FileChannel.open(Path.of(path))) {
            words = channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size()).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer();
        }
        PacedRecord record = new PacedRecord(PacedJoin.record.lagsMs.length);
        int count = words.limit() / 3;
        int next = 0;
        while (running && next < count && time(next) < PacedClock.leadUs) {
            next = handOver(context, next, Math.min(count, next + BLOCK), PacedClock.leadUs - 1);
        }
        PacedClock.leadHandedOver();
        while (running && next < count) {
            long nowNs = PacedClock.nowNs();
            long dueNs = PacedClock.dueNs(time(next));
            if (dueNs > nowNs) {
                Thread.sleep(1);
                continue;
            }
            record.lag(nowNs, dueNs);
            next = handOver(context, next, Math.min(count, next + BLOCK), PacedClock.dueUs(nowNs));
        }
        PacedJoin.record.merge(record);
    }

    /** Tuples from `next` on, before `end` and not after `lastUs`; returns which is next then. */
    private int handOver(SourceContext<Rec> context, int next, int end, long lastUs) {
        synchronized (context.getCheckpointLock()) {
            do {
                Rec tuple = new Rec(time(next), words.get(3 * next + 1), words.get(3 * next + 2));
                context.collectWithTimestamp(tuple, tuple.ts);
                next++;
            } while (next < end && time(next) <= lastUs);
            long nowNs = System.nanoTime();
            if (nowNs - watermarkedNs >= watermarkNs) {
                context.emitWatermark(new Watermark(time(next - 1) - 1));
                watermarkedNs = nowNs;
            }
        }
        return next;
    }

    private long time(int tuple) {
        return words.get(3 * tuple);
    }

    @Override
    public void cancel() {
        running = false;
    }
}
