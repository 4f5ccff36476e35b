import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** Flink in this process, set up for speed: state on the heap, records handed on without copies, no checkpoints. */
final class Settings {
    static final int WATERMARK_TUPLES = 10_000; // a watermark after so many

    private Settings() {}

    static StreamExecutionEnvironment environment(int parallelism) {
        Configuration settings = new Configuration();
        settings.setString("state.backend.type", "hashmap");
        settings.setString("pipeline.object-reuse", "true");
        settings.setString("pipeline.auto-watermark-interval", "0"); // the sources emit their own
        settings.setString("metrics.latency.interval", "0");
        settings.setString("taskmanager.memory.network.min", "256mb");
        settings.setString("taskmanager.memory.network.max", "256mb");
        settings.setString("table.local-time-zone", "UTC");
        settings.setString("rest.port", "0"); // any: a port in use elsewhere must not stop it
        settings.setString("rest.bind-port", "0");
        return StreamExecutionEnvironment.createLocalEnvironment(parallelism, settings);
    }
}
