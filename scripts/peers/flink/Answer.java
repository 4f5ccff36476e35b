import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.Locale;
import org.apache.flink.runtime.util.EnvironmentInformation;

/** Results and their sum, added up by all sinks of this process; time from the first file opened to the last sink closed. */
final class Answer {
    private static final OperatingSystemMXBean SYSTEM = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static boolean started;
    private static long startNs, endNs, startCpuNs, endCpuNs;
    private static long results, sum;

    private Answer() {}

    static synchronized void start() {
        if (!started) {
            started = true;
            startNs = System.nanoTime();
            startCpuNs = SYSTEM.getProcessCpuTime();
        }
    }

    static synchronized void add(long moreResults, long moreSum) {
        results += moreResults;
        sum += moreSum;
        endNs = System.nanoTime();
        endCpuNs = SYSTEM.getProcessCpuTime();
    }

    static synchronized void print() {
        System.out.printf(Locale.ROOT,
                "{\"seconds\": %.4f, \"results\": %d, \"sum\": %d, \"cpu_s\": %.3f, \"version\": \"%s\"}%n",
                (endNs - startNs) / 1e9, results, sum, (endCpuNs - startCpuNs) / 1e9, EnvironmentInformation.getVersion());
        System.out.flush();
    }
}
