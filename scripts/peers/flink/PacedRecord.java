import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** What a replay showed: results, their delays by the second at which they were due, and how late the sources were. */
public final class PacedRecord {
    static final int DELAY_MS_MAX = 60_000; // what took longer counts as that

    long results;
    final long[][] delays; // [second][ms]
    final long[] lagsMs; // [second], the longest

    PacedRecord(int seconds) {
        delays = new long[seconds][DELAY_MS_MAX + 1];
        lagsMs = new long[seconds];
    }

    /** A result has been counted now, whose later tuple is of this time. Those of the lead have no delay. */
    void result(long timeUs) {
        results++;
        long dueNs = PacedClock.dueNs(timeUs);
        if (dueNs >= 0) {
            long delayMs = Math.max(0, PacedClock.nowNs() - dueNs) / 1_000_000;
            delays[second(dueNs)][(int) Math.min(delayMs, DELAY_MS_MAX)]++;
        }
    }

    /** A tuple that was due then is handed over now. */
    void lag(long nowNs, long dueNs) {
        int second = second(nowNs);
        lagsMs[second] = Math.max(lagsMs[second], (nowNs - dueNs) / 1_000_000);
    }

    private int second(long ns) {
        return (int) Math.min(ns / 1_000_000_000, lagsMs.length - 1);
    }

    synchronized void merge(PacedRecord other) {
        results += other.results;
        for (int second = 0; second < lagsMs.length; second++) {
            lagsMs[second] = Math.max(lagsMs[second], other.lagsMs[second]);
            for (int ms = 0; ms <= DELAY_MS_MAX; ms++) {
                delays[second][ms] += other.delays[second][ms];
            }
        }
    }

    void write(Path file) throws IOException {
        StringBuilder delayRows = new StringBuilder();
        StringBuilder lagRows = new StringBuilder();
        for (int second = 0; second < lagsMs.length; second++) {
            row(lagRows, second, lagsMs[second]);
            for (int ms = 0; ms <= DELAY_MS_MAX; ms++) {
                if (delays[second][ms] > 0) {
                    row(delayRows, second, ms, delays[second][ms]);
                }
            }
        }
        Files.writeString(file, "{\"results\": " + results + ", \"delays\": [" + delayRows + "], \"lags\": [" + lagRows + "]}\n");
    }

    private static void row(StringBuilder rows, long... values) {
        rows.append(rows.length() == 0 ? "" : ", ").append(java.util.Arrays.toString(values));
    }
}
