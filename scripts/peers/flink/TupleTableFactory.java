import java.util.Set;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.DataStreamSink;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.legacy.RichSinkFunction;
import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.ProviderContext;
import org.apache.flink.table.connector.sink.DataStreamSinkProvider;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.source.DataStreamScanProvider;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.connector.source.abilities.SupportsSourceWatermark;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.data.binary.BinaryRowData;
import org.apache.flink.table.data.writer.BinaryRowWriter;
import org.apache.flink.table.factories.DynamicTableSinkFactory;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.factories.FactoryUtil;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.RowType;

/** The table connector 'tuples': reads (key, id, ts) of a TupleFile into Flink's binary rows; counts and sums what it gets. */
public final class TupleTableFactory implements DynamicTableSourceFactory, DynamicTableSinkFactory {
    private static final ConfigOption<String> PATH = ConfigOptions.key("path").stringType().noDefaultValue();

    @Override
    public String factoryIdentifier() {
        return "tuples";
    }

    @Override
    public Set<ConfigOption<?>> requiredOptions() {
        return Set.of(PATH);
    }

    @Override
    public Set<ConfigOption<?>> optionalOptions() {
        return Set.of();
    }

    @Override
    public DynamicTableSource createDynamicTableSource(Context context) {
        String path = FactoryUtil.createTableFactoryHelper(this, context).getOptions().get(PATH);
        return new TupleSource(path, (RowType) context.getPhysicalRowDataType().getLogicalType());
    }

    @Override
    public DynamicTableSink createDynamicTableSink(Context context) {
        return new AnswerSink();
    }

    static final class TupleSource implements ScanTableSource, SupportsSourceWatermark {
        private final String path;
        private final RowType type;

        TupleSource(String path, RowType type) {
            this.path = path;
            this.type = type;
        }

        @Override
        public ChangelogMode getChangelogMode() {
            return ChangelogMode.insertOnly();
        }

        @Override
        public void applySourceWatermark() {} // it always emits them

        @Override
        public ScanRuntimeProvider getScanRuntimeProvider(ScanContext context) {
            return new DataStreamScanProvider() {
                @Override
                public boolean isBounded() {
                    return false; // so that it is planned as a stream
                }

                @Override
                public DataStream<RowData> produceDataStream(ProviderContext context, StreamExecutionEnvironment environment) {
                    return environment.addSource(new Rows(path), path, InternalTypeInfo.<RowData>of(type)).setParallelism(1);
                }
            };
        }

        @Override
        public DynamicTableSource copy() {
            return new TupleSource(path, type);
        }

        @Override
        public String asSummaryString() {
            return "tuples of " + path;
        }
    }

    static final class Rows implements SourceFunction<RowData> {
        private final String path;
        private volatile boolean cancelled;

        Rows(String path) {
            this.path = path;
        }

        @Override
        public void run(SourceContext<RowData> context) throws Exception {
            TupleFile file = new TupleFile(path);
            BinaryRowData row = new BinaryRowData(3);
            BinaryRowWriter writer = new BinaryRowWriter(row);
            for (long next = 0; next < file.tuples && !cancelled; ) {
                long end = Math.min(file.tuples, next + Settings.WATERMARK_TUPLES);
                synchronized (context.getCheckpointLock()) {
                    for (; next < end; next++) {
                        long ts = file.ts(next);
                        writer.reset();
                        writer.writeLong(0, file.key(next));
                        writer.writeLong(1, file.id(next));
                        writer.writeTimestamp(2, TimestampData.fromEpochMillis(ts), 3);
                        writer.complete();
                        context.collectWithTimestamp(row, ts);
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

    static final class AnswerSink implements DynamicTableSink {
        @Override
        public ChangelogMode getChangelogMode(ChangelogMode requested) {
            return ChangelogMode.insertOnly();
        }

        @Override
        public SinkRuntimeProvider getSinkRuntimeProvider(Context context) {
            return new DataStreamSinkProvider() {
                @Override
                public DataStreamSink<?> consumeDataStream(ProviderContext context, DataStream<RowData> rows) {
                    return rows.addSink(new Adder());
                }
            };
        }

        @Override
        public DynamicTableSink copy() {
            return new AnswerSink();
        }

        @Override
        public String asSummaryString() {
            return "answer";
        }
    }

    static final class Adder extends RichSinkFunction<RowData> {
        private long results, sum;

        @Override
        public void invoke(RowData row, Context context) {
            results++;
            sum += row.getLong(0);
        }

        @Override
        public void close() {
            Answer.add(results, sum);
        }
    }
}
