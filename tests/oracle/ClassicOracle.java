import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import org.apache.activemq.RedeliveryPolicy;
import org.apache.activemq.broker.Broker;
import org.apache.activemq.broker.BrokerFactory;
import org.apache.activemq.broker.BrokerPlugin;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.broker.ConnectionContext;
import org.apache.activemq.broker.MutableBrokerFilter;
import org.apache.activemq.broker.ProducerBrokerExchange;
import org.apache.activemq.broker.region.Destination;
import org.apache.activemq.broker.region.DestinationFactoryImpl;
import org.apache.activemq.broker.region.DurableTopicSubscription;
import org.apache.activemq.broker.region.RegionBroker;
import org.apache.activemq.broker.region.Subscription;
import org.apache.activemq.broker.region.policy.DeadLetterStrategy;
import org.apache.activemq.broker.region.policy.PolicyEntry;
import org.apache.activemq.broker.region.policy.PolicyMap;
import org.apache.activemq.broker.util.RedeliveryPlugin;
import org.apache.activemq.command.ActiveMQDestination;
import org.apache.activemq.command.ActiveMQTextMessage;
import org.apache.activemq.command.ConsumerId;
import org.apache.activemq.command.ConsumerInfo;
import org.apache.activemq.command.Message;
import org.apache.activemq.command.MessageId;
import org.apache.activemq.filter.DestinationFilter;
import org.apache.activemq.filter.DestinationMap;
import org.apache.activemq.filter.DestinationMapEntry;
import org.apache.activemq.security.SecurityContext;

/**
 * Asks the broker's own classes what becomes of dead letters.
 *
 * <p>Standard input, one command per line, fields separated by tabs: <code>config FILE</code> reads
 * an activemq.xml through the broker's own factory and builds its chain around a region broker that
 * writes down instead of sending; <code>case DESTINATION COUNT PERSISTENT EXPIRED DUPLICATE
 * SUBSCRIPTION COIN DISTANCE</code> sends one dead letter through it. Each line is answered by one
 * line. COIN and DISTANCE are what the broker's random numbers are for this case.
 *
 * <p>Nothing is started; nothing listens.
 */
public final class ClassicOracle {
    private static final class ScriptedRandom extends Random {
        private static final long serialVersionUID = 1L;
        double coin;
        double distance;

        @Override
        public boolean nextBoolean() {
            return coin < 0.5;
        }

        @Override
        public double nextDouble() {
            return distance;
        }
    }

    /** The region broker's own decision; what it would store is written down. */
    private static final class RecordingBroker extends RegionBroker {
        String record;
        long askedAt;

        RecordingBroker(BrokerService service) throws IOException {
            super(service, null, service.getSystemUsage(),
                new DestinationFactoryImpl(service, null, service.getPersistenceAdapter()),
                null, null, null);
        }

        @Override
        public Destination addDestination(ConnectionContext context, ActiveMQDestination destination,
                boolean create) {
            return place(destination, null);
        }

        @Override
        public void send(ProducerBrokerExchange exchange, Message message) throws Exception {
            Object delay = message.getProperty("AMQ_SCHEDULED_DELAY");
            if (delay != null) {
                record = "redeliver\t" + delay + "\t" + message.getRedeliveryCounter();
            } else {
                long expiration = message.getExpiration();
                record = "dead_letter\t" + message.getDestination().getQualifiedName() + "\t"
                    + (expiration > 0 ? expiration - askedAt : 0);
            }
        }
    }

    private static final ScriptedRandom RANDOM = new ScriptedRandom();

    private RecordingBroker inner;
    private Broker outer;
    private PolicyMap policies;
    private final List<DestinationMap> maps = new ArrayList<>();
    private final Map<ActiveMQDestination, Boolean> undecided = new HashMap<>();
    private ConnectionContext context;
    private long sequence;

    public static void main(String[] arguments) throws Exception {
        BrokerFactory.setStartDefault(false);
        Field random = RedeliveryPolicy.class.getDeclaredField("randomNumberGenerator");
        random.setAccessible(true);
        random.set(null, RANDOM);
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false,
            StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 16);
        ClassicOracle oracle = new ClassicOracle();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split("\t", -1);
            out.println(fields[0].equals("config") ? oracle.configure(fields[1]) : oracle.decide(fields));
            if (fields[0].equals("config")) {
                out.flush();
            }
        }
        out.flush();
        System.exit(0);
    }

    private String configure(String file) {
        outer = null;
        try {
            BrokerService service = BrokerFactory.createBroker(new URI("xbean:" + file), false);
            inner = new RecordingBroker(service);
            policies = service.getDestinationPolicy();
            maps.clear();
            undecided.clear();
            Broker chain = inner;
            BrokerPlugin[] plugins = service.getPlugins();
            for (BrokerPlugin plugin : plugins == null ? new BrokerPlugin[0] : plugins) {
                if (plugin instanceof RedeliveryPlugin) {
                    maps.add(((RedeliveryPlugin) plugin).getRedeliveryPolicyMap());
                }
                chain = install(plugin, chain);
            }
            if (policies != null) {
                maps.add(policies);
            }
            context = new ConnectionContext();
            context.setBroker(inner);
            context.setClientId("client");
            context.setSecurityContext(SecurityContext.BROKER_SECURITY_CONTEXT);
            outer = chain;
            return "configured";
        } catch (Exception problem) {
            Throwable cause = problem;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            return "refused\t" + String.valueOf(cause).replaceAll("\\s+", " ");
        }
    }

    /** Install as the broker does, but go on where only the one-second check refuses. */
    private static Broker install(BrokerPlugin plugin, Broker next) throws Exception {
        try {
            return plugin.installPlugin(next);
        } catch (IllegalStateException refused) {
            if (!String.valueOf(refused.getMessage()).contains("must exceed")) {
                throw refused;
            }
            ((MutableBrokerFilter) plugin).setNext(next);
            return (Broker) plugin;
        }
    }

    private static Destination place(ActiveMQDestination destination, DeadLetterStrategy strategy) {
        return (Destination) Proxy.newProxyInstance(ClassicOracle.class.getClassLoader(),
            new Class<?>[] {Destination.class}, (self, method, arguments) -> {
                switch (method.getName()) {
                    case "getActiveMQDestination":
                        return destination;
                    case "getDeadLetterStrategy":
                        return strategy;
                    case "hashCode":
                        return System.identityHashCode(self);
                    case "toString":
                        return "place of " + destination;
                    default:
                        Class<?> type = method.getReturnType();
                        return type == boolean.class ? (Object) false
                            : type == int.class ? (Object) 0 : type == long.class ? (Object) 0L : null;
                }
            });
    }

    private String decide(String[] fields) throws Exception {
        if (outer == null) {
            return "refused";
        }
        ActiveMQDestination destination =
            ActiveMQDestination.createDestination(fields[1], ActiveMQDestination.QUEUE_TYPE);
        PolicyEntry entry = policies == null ? null : policies.getEntryFor(destination);
        DeadLetterStrategy strategy =
            entry == null ? Destination.DEFAULT_DEAD_LETTER_STRATEGY : entry.getDeadLetterStrategy();
        ActiveMQTextMessage message = new ActiveMQTextMessage();
        message.setMessageId(new MessageId("oracle:1:1:1", ++sequence));
        message.setDestination(destination);
        message.setRegionDestination(place(destination, strategy));
        message.setRedeliveryCounter(Integer.parseInt(fields[2]));
        message.setPersistent(fields[3].equals("true"));
        message.setExpiration(fields[4].equals("true") ? 1 : 0);
        Throwable cause = fields[5].equals("true")
            ? new Throwable("duplicate from store for " + destination)
            : new Throwable("Delivery[7] exceeds redelivery policy limit");
        RANDOM.coin = Double.parseDouble(fields[7]);
        RANDOM.distance = Double.parseDouble(fields[8]);
        inner.record = "discard";
        inner.askedAt = System.currentTimeMillis();
        outer.sendToDeadLetterQueue(context, message, subscription(fields[6], destination), cause);
        String answer = inner.record;
        return answer + (undecided.computeIfAbsent(destination, this::isUndecided) ? "\tambiguous" : "");
    }

    private boolean isUndecided(ActiveMQDestination destination) {
        for (DestinationMap map : maps) {
            Set<String> winners = new TreeSet<>();
            findWinners(map, destination, winners);
            if (winners.size() > 1) {
                return true;
            }
        }
        return false;
    }

    private Subscription subscription(String key, ActiveMQDestination destination) throws Exception {
        if (key.isEmpty()) {
            return null;
        }
        int colon = key.indexOf(':');
        ConnectionContext durable = new ConnectionContext();
        durable.setBroker(inner);
        durable.setClientId(key.substring(0, colon));
        ConsumerInfo info = new ConsumerInfo(new ConsumerId("oracle:1:1:1"));
        info.setDestination(destination);
        info.setSubscriptionName(key.substring(colon + 1));
        return new DurableTopicSubscription(inner, inner.getBrokerService().getSystemUsage(), durable, info,
            false);
    }

    /** Collect every entry that the map could choose, over all orders in which a set may list them. */
    private static void findWinners(DestinationMap map, ActiveMQDestination destination,
            Set<String> winners) {
        List<DestinationMapEntry<?>> matching = new ArrayList<>();
        for (Object value : map.get(destination)) {
            DestinationMapEntry<?> entry = (DestinationMapEntry<?>) value;
            if (destination.equals(entry.getDestination())
                    || DestinationFilter.parseFilter(entry.getDestination()).matches(destination)) {
                matching.add(entry);
            }
        }
        if (matching.size() > 1) {
            permute(matching, 0, destination, winners);
        }
    }

    private static void permute(List<DestinationMapEntry<?>> entries, int from,
            ActiveMQDestination destination, Set<String> winners) {
        if (from == entries.size()) {
            Comparator<DestinationMapEntry<?>> comparator = (one, two) ->
                destination.equals(one.getDestination()) ? -1
                    : destination.equals(two.getDestination()) ? 1 : one.compareTo(two);
            TreeSet<DestinationMapEntry<?>> sorted = new TreeSet<>(comparator);
            sorted.addAll(entries);
            winners.add(System.identityHashCode(sorted.first()) + sorted.first().getDestination().toString());
            return;
        }
        for (int index = from; index < entries.size(); index++) {
            Collections.swap(entries, from, index);
            permute(entries, from + 1, destination, winners);
            Collections.swap(entries, from, index);
        }
    }
}
