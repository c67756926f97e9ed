export interface Booking {
  room: string;
  from: Date;
  to: Date;
  owner: string;
}

export function overlaps(first: Booking, second: Booking): boolean {
  return first.room === second.room && first.from < second.to && second.from < first.to;
}

export function validate(booking: Booking, others: Booking[]): string[] {
  const errors: string[] = [];
  if (booking.from >= booking.to) {
    errors.push("the booking ends before it begins");
  }
  for (const other of others) {
    if (overlaps(booking, other)) {
      errors.push(`room ${booking.room} is taken by ${other.owner}`);
    }
  }
  return errors;
}
