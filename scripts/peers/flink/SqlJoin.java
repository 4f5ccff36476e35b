import java.util.Locale;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/**
 * Flink SQL's interval join of two binary files, counted: SqlJoin LEFT RIGHT WINDOW_US PARALLELISM.
 *
 * Time attributes are TIMESTAMP(3); a millisecond of theirs stands for a microsecond, so that the join is exact.
 */
public final class SqlJoin {
    private static final String SOURCE = "create table %s"
            + " (`key` bigint, id bigint, ts timestamp(3), watermark for ts as source_watermark())"
            + " with ('connector' = 'tuples', 'path' = '%s')";
    private static final String SINK = "create table answer (`value` bigint) with ('connector' = 'tuples', 'path' = '')";
    private static final String JOIN = "insert into answer select l.id * 31 + r.id from l0 l join r0 r"
            + " on l.`key` = r.`key` and r.ts between l.ts - %2$s and l.ts + %2$s";

    public static void main(String[] arguments) throws Exception {
        StreamTableEnvironment tables = StreamTableEnvironment.create(
                Settings.environment(Integer.parseInt(arguments[3])), EnvironmentSettings.inStreamingMode());
        tables.executeSql(String.format(SOURCE, "l0", arguments[0]));
        tables.executeSql(String.format(SOURCE, "r0", arguments[1]));
        tables.executeSql(SINK);
        tables.executeSql(String.format(JOIN, "", interval(Long.parseLong(arguments[2])))).await();
        Answer.print();
        System.exit(0); // threads of the local cluster would keep it alive for a while
    }

    private static String interval(long milliseconds) {
        long seconds = milliseconds / 1000, minutes = seconds / 60, hours = minutes / 60;
        return String.format(Locale.ROOT, "interval '%d %02d:%02d:%02d.%03d' day(3) to second(3)",
                hours / 24, hours % 24, minutes % 60, seconds % 60, milliseconds % 1000);
    }
}
