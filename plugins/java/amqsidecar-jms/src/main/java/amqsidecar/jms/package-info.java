/**
 * Notes of JMS consumers about failed deliveries.
 *
 * <p>{@link amqsidecar.jms.CauseNotes} is the way in. The same classes serve {@code javax.jms} and
 * {@code jakarta.jms}: the API is found by reflection in the application's connection factory.
 */
package amqsidecar.jms;
