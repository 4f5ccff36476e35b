import java.nio.file.Path;
import java.time.Duration;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.co.ProcessJoinFunction;
import org.apache.flink.util.Collector;

/**
 * The interval join of two streams replayed at a pace, in one JVM. A millisecond of Flink's event time stands for a microsecond.
 *
 * <p>Arguments: left file, right file, window in us, lead in us, speed, seconds of the replay, watermark interval in ms, buffer
 * timeout in ms, parallelism, file for what was found.
 */
public final class PacedJoin {
    static PacedRecord record; // sources and sinks run in this JVM

    private PacedJoin() {}

    public static void main(String[] arguments) throws Exception {
        long windowUs = Long.parseLong(arguments[2]);
        PacedClock.leadUs = Long.parseLong(arguments[3]);
        PacedClock.speed = Double.parseDouble(arguments[4]);
        record = new PacedRecord(1 + (int) Math.ceil(Double.parseDouble(arguments[5])));
        long watermarkMs = Long.parseLong(arguments[6]);
        int parallelism = Integer.parseInt(arguments[8]);
        StreamExecutionEnvironment flink = environment(parallelism, arguments[7] + "ms");
        stream(flink, arguments[0], watermarkMs)
                .intervalJoin(stream(flink, arguments[1], watermarkMs))
                .between(Duration.ofMillis(-windowUs), Duration.ofMillis(windowUs))
                .process(new LaterTime(), Types.LONG)
                .addSink(new PacedSink());
        flink.execute();
        record.write(Path.of(arguments[9]));
        System.exit(0); // threads of the local cluster linger
    }

    private static StreamExecutionEnvironment environment(int parallelism, String bufferTimeout) {
        Configuration settings = new Configuration();
        settings.setString("state.backend.type", "hashmap"); // the fastest: objects on the heap
        settings.setString("pipeline.object-reuse", "true");
        settings.setString("execution.buffer-timeout.interval", bufferTimeout);
        settings.setString("pipeline.auto-watermark-interval", "0"); // the sources emit their own
        settings.setString("taskmanager.memory.network.min", "256mb");
        settings.setString("taskmanager.memory.network.max", "256mb");
        settings.setString("rest.port", "0");
        settings.setString("rest.bind-port", "20000-40000");
        return StreamExecutionEnvironment.createLocalEnvironment(parallelism, settings).setMaxParallelism(128);
    }

    private static KeyedStream<Rec, Long> stream(StreamExecutionEnvironment flink, String path, long watermarkMs) {
        PacedSource source = new PacedSource(path, watermarkMs);
        KeySelector<Rec, Long> key = tuple -> tuple.key;
        return flink.addSource(source, path, new Rec.Type()).setParallelism(1).keyBy(key, Types.LONG);
    }

    private static final class LaterTime extends ProcessJoinFunction<Rec, Rec, Long> {
        @Override
        public void processElement(Rec left, Rec right, Context context, Collector<Long> out) {
            out.collect(Math.max(left.ts, right.ts));
        }
    }
}
