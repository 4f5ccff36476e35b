import java.time.Duration;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.co.ProcessJoinFunction;
import org.apache.flink.streaming.api.functions.sink.legacy.RichSinkFunction;
import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.util.Collector;

/**
 * Flink's DataStream interval join of two binary files, counted: DataStreamJoin LEFT RIGHT WINDOW_US PARALLELISM.
 *
 * Flink's event time counts milliseconds; here one stands for a microsecond, so that the join is exact.
 */
public final class DataStreamJoin {
    public static void main(String[] arguments) throws Exception {
        Duration window = Duration.ofMillis(Long.parseLong(arguments[2]));
        StreamExecutionEnvironment environment = Settings.environment(Integer.parseInt(arguments[3]));
        KeyedStream<Rec, Long> left = stream(environment, arguments[0]), right = stream(environment, arguments[1]);
        left.intervalJoin(right).between(window.negated(), window).process(new Pair(), Types.LONG).addSink(new Sink());
        environment.execute();
        Answer.print();
        System.exit(0); // threads of the local cluster would keep it alive for a while
    }

    private static KeyedStream<Rec, Long> stream(StreamExecutionEnvironment environment, String path) {
        return environment.addSource(new Source(path), path, new Rec.Type()).setParallelism(1).keyBy(new Key(), Types.LONG);
    }

    static final class Source implements SourceFunction<Rec> {
        private final String path;
        private volatile boolean cancelled;

        Source(String path) {
            this.path = path;
        }

        @Override
        public void run(SourceContext<Rec> context) throws Exception {
            TupleFile file = new TupleFile(path);
            for (long next = 0; next < file.tuples && !cancelled; ) {
                long end = Math.min(file.tuples, next + Settings.WATERMARK_TUPLES);
                synchronized (context.getCheckpointLock()) {
                    for (; next < end; next++) {
                        long ts = file.ts(next);
                        context.collectWithTimestamp(new Rec(ts, file.key(next), file.id(next)), ts);
                    }
                    context.emitWatermark(new Watermark(file.ts(end - 1) - 1)); // more tuples of that time may come
                }
            }
        }

        @Override
        public void cancel() {
            cancelled = true;
        }
    }

    static final class Key implements KeySelector<Rec, Long> {
        @Override
        public Long getKey(Rec rec) {
            return rec.key;
        }
    }

    static final class Pair extends ProcessJoinFunction<Rec, Rec, Long> {
        @Override
        public void processElement(Rec left, Rec right, Context context, Collector<Long> out) {
            out.collect(left.id * 31 + right.id);
        }
    }

    static final class Sink extends RichSinkFunction<Long> {
        private transient long results, sum;

        @Override
        public void open(OpenContext context) {
            results = sum = 0;
        }

        @Override
        public void invoke(Long value, Context context) {
            results++;
            sum += value;
        }

        @Override
        public void close() {
            Answer.add(results, sum);
        }
    }
}
