// The log as its tables have it, against what the writers were told and what the pages showed.

/** Everything that is wrong with the log; empty when nothing is. Answers count in the epoch that they were given in. */
export function audit(cluster, writers) {
  const wrong = [];
  const row = (text) => JSON.parse(text);
  const query = (statement) => {
    const text = cluster.sql(`SET search_path = inorder; SELECT row_to_json(t) FROM (${statement}) t`);
    return text === '' ? [] : text.split('\n').map(row);
  };
  const [meta] = query('SELECT epoch, row FROM meta');
  const events = query('SELECT row, entity, seq, id, status, data FROM event ORDER BY row');
  const byEntity = new Map();
  const byId = new Map();
  for (const event of events) {
    const history = byEntity.get(event.entity) ?? [];
    byEntity.set(event.entity, history);
    history.push(event);
    if (event.seq !== history.length) wrong.push(`${event.entity} has ${event.seq} as its change ${history.length}`);
    if (event.id && byId.has(`${event.entity} ${event.id}`)) wrong.push(`${event.entity} has ${event.id} twice`);
    byId.set(`${event.entity} ${event.id}`, event);
    if (event.id && !writers.sent.has(event.id))
      wrong.push(`${event.entity} has ${event.id}, which was refused or never sent`);
    if (history.at(-2)?.status === 'completed') wrong.push(`${event.entity} changed after its end`);
  }
  for (const [id, { entity, seq, epoch }] of writers.acknowledged) {
    if (epoch === meta.epoch && byId.get(`${entity} ${id}`)?.seq !== seq) {
      wrong.push(`${id} was answered with ${entity} ${seq} and is not there`);
    }
  }
  for (const { name, seq, status, state } of query('SELECT name, seq, status, state FROM entity WHERE seq > 0')) {
    const history = byEntity.get(name) ?? [];
    if (seq !== history.length) wrong.push(`${name} has the head ${seq} of ${history.length}`);
    if (name.startsWith('topic/')) continue;
    const sum = Object.assign({}, ...history.map((event) => JSON.parse(event.data)));
    if (canonical(sum) !== canonical(JSON.parse(state))) wrong.push(`${name} has a state that its events do not make`);
    if ((history.at(-1)?.status ?? null) !== status) wrong.push(`${name} has a status that its events do not make`);
  }
  const last = events.at(-1)?.row ?? 0;
  if (last > meta.row) wrong.push(`row ${last} lies above the last row ${meta.row}`);
  return { wrong, events: events.length, byEntity, epoch: meta.epoch };
}

/** What pages showed of the log's epoch and the log does not have. */
export function compare(pages, { byEntity, epoch }) {
  const wrong = [];
  for (const { name, shown, violations } of pages) {
    wrong.push(...violations);
    for (const [entity, { ids, epoch: of }] of shown) {
      if (of !== epoch) continue;
      const history = byEntity.get(entity) ?? [];
      for (const [seq, id] of ids) {
        if (history[seq - 1]?.id !== id)
          wrong.push(`${name}: showed ${id} as ${entity} ${seq}, the log has ${history[seq - 1]?.id}`);
      }
    }
  }
  return wrong;
}

/** JSON with sorted keys. */
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (value === null || typeof value !== 'object') return JSON.stringify(value) ?? 'null';
  const keys = Object.keys(value).sort();
  return `{${keys.map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join(',')}}`;
}
